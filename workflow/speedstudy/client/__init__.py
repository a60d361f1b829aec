"""The client: puts a load on a server and records what came back; knows no engine."""
