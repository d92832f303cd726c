"""A model as a service: readings come in by HTTP, MQTT or Redis, predictions go out, and nothing is lost."""
