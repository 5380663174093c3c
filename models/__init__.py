"""Models, one folder each; they reach the engine through the entry points of voxserve.models."""
