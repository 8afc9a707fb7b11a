"""Passes on graphs as Dynamo traced them, before autograd."""
