"""The web page that transcribes speech and shows beams."""
