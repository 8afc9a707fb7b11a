"""Programs that write kernels, and a judge that they cannot reach into: tools over MCP, environments for training."""
