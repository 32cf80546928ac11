"""Takes turns with kazoo's Lock: HOSTS KIND NAME TURNS FOLDER."""

import pathlib
import sys

from kazoo.client import KazooClient

hosts, kind, name, turns, folder = sys.argv[1:]
folder = pathlib.Path(folder)
client = KazooClient(hosts=hosts)
client.start(timeout=30)
lock = {"lock": client.Lock, "write": client.WriteLock}[kind]("/locks/" + name, "kazoo")
for _ in range(int(turns)):
    with lock:
        # A folder that must not be there, and a number in a file.
        (folder / "inside").mkdir()
        count = folder / "count"
        count.write_text(str(int(count.read_text()) + 1))
        (folder / "inside").rmdir()
client.stop()
