"""IMDb: is a film review positive? By an LSTM."""
