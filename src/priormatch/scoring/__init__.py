"""Error rates, alignments, confidence intervals and the formats of transcripts."""
