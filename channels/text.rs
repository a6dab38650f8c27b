//! Text helpers that channels share.
