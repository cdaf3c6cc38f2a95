"""Networks: TDS encoder, attention decoder, convolutional language model, and their losses."""
