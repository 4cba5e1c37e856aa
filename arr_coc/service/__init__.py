"""Service: the one service under page and API, from what a visitor gives to plain records."""
