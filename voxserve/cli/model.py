"""The model that a command is about, without its engine, and the voices uploaded for it."""

from dataclasses import dataclass

from voxserve import checkpoints
from voxserve.api.clip_source import ClipSource
from voxserve.api.clips import Clips
from voxserve.api.media_fetch import MediaFetcher
from voxserve.api.voice_store import StoredVoice, VoiceStore
from voxserve.config import Config
from voxserve.plugin import HostLogic


@dataclass(frozen=True, slots=True)
class ModelAtHand:
    """voices: all that the folder holds. uploaded: those that the model can speak with."""

    host: HostLogic
    voices: VoiceStore
    uploaded: list[StoredVoice]

    def clips(self, settings: Config) -> Clips:
        """For the recordings of those voices."""
        api = settings.api
        return Clips(ClipSource(MediaFetcher(api.media_domains), api.media_dir))


def find(settings: Config) -> ModelAtHand:
    """Raises CheckpointError when there is no such model."""
    plugin, checkpoint = checkpoints.find(settings.model, dummy=settings.load_format == "dummy")
    host = plugin.host(checkpoint)
    voices = VoiceStore(settings.api.voices_dir)
    voices.load()
    return ModelAtHand(host, voices, voices.all() if host.info.cloning else [])
