"""The wire to models: streams, dialects, the embedded model."""
