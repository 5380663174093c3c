"""Speak through Pipecat's two services in a pipeline; argument: the server's address.

Run in an environment of its own (pipecat.txt); prints one JSON line a way.
"""

import asyncio
import json
import sys

from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.tests.utils import SleepFrame, run_test

WORDS = ("Hello ", "there. ", "It is ", "a fine day.")
WAIT_S = 6.0


async def speak(way: str, service: FrameProcessor) -> None:
    reply: list[Frame] = [LLMFullResponseStartFrame(), *map(LLMTextFrame, WORDS)]
    frames = [*reply, LLMFullResponseEndFrame(), SleepFrame(sleep=WAIT_S)]
    down, up = await run_test(service, frames_to_send=frames, start_timeout=30)
    audio = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    print(
        json.dumps(
            {
                "way": way,
                "seconds": sum(len(frame.audio) / 2 / frame.sample_rate for frame in audio),
                "stopped": any(isinstance(frame, TTSStoppedFrame) for frame in down),
                "text": " ".join(f.text for f in down if isinstance(f, TTSTextFrame)),
                "errors": [frame.error for frame in [*down, *up] if isinstance(frame, ErrorFrame)],
            }
        )
    )


async def main(url: str) -> None:
    openai = OpenAITTSService(
        api_key="none",
        base_url=f"{url}/v1",
        settings=OpenAITTSService.Settings(voice="alloy"),
    )
    await speak("openai", openai)
    eleven = ElevenLabsTTSService(
        api_key="none",
        url=url.replace("http", "ws", 1),
        settings=ElevenLabsTTSService.Settings(voice="ryan"),
    )
    await speak("elevenlabs", eleven)


asyncio.run(main(sys.argv[1]))
