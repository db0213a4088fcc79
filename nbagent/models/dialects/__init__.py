"""How a model expresses actions: native tool calls, a JSON object, a fenced block."""
