//! The way of one message, in travel order.
