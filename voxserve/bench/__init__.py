"""The benchmark: open-loop load on speech servers, profiles of executables, and a simulator."""
