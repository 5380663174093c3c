"""Speak through LiveKit's two plugins, with their defaults; argument: the server's address.

Run in an environment of its own (livekit.txt); prints one JSON line a way.
"""

import asyncio
import json
import sys

import aiohttp
from livekit.agents import tts
from livekit.plugins import elevenlabs, openai

TEXT = "Hello there. It is a fine day, is it not?"


def report(way: str, frames: list[tts.SynthesizedAudio]) -> None:
    seconds = sum(heard.frame.duration for heard in frames)
    print(json.dumps({"way": way, "seconds": seconds, "rate": frames[0].frame.sample_rate}))


async def whole(way: str, speaker: tts.TTS) -> None:
    """`synthesize`: all of the text at once."""
    report(way, [heard async for heard in speaker.synthesize(TEXT)])


async def written(way: str, speaker: tts.TTS) -> None:
    """`stream`: the text word by word."""
    async with speaker.stream() as stream:
        for word in TEXT.split(" "):
            stream.push_text(f"{word} ")
        stream.end_input()
        report(way, [heard async for heard in stream])


async def main(url: str) -> None:
    async with aiohttp.ClientSession() as http:
        speaker = openai.TTS(base_url=f"{url}/v1", api_key="none")
        speaker.prewarm()
        await whole("openai", speaker)
        await speaker.aclose()
        eleven = elevenlabs.TTS(
            base_url=f"{url}/v1", api_key="none", voice_id="ryan", http_session=http
        )
        await whole("elevenlabs", eleven)
        await written("elevenlabs stream", eleven)
        await written("elevenlabs stream again", eleven)
        print(json.dumps({"way": "voices", "names": [v.name for v in await eleven.list_voices()]}))
        await eleven.aclose()


asyncio.run(main(sys.argv[1]))
