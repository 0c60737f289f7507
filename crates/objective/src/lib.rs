//! Advantages, filters, aggregation and losses as plain numbers.
