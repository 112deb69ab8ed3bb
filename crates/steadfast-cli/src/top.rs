//! `steadfast top`: a full-screen live table of some resources.
//!
//! | module | responsibility |
//! |---|---|
//! | `model` | state of the screen: keys and changes are inputs, requests to the shell are outputs |
//! | `view` | drawing of the model |
//! | `table` | rows in an order that is maintained incrementally, with a filter and a cursor |
//! | `row`, `schema`, `cell_cache` | rows, their cells, and the cells of visible rows |
//! | `filter`, `natural_order` | filters and the order of texts |
//! | `history` | bounded history of changes |
//! | `details`, `pages` | an opened object, and its pages that need requests |
//! | `source` | informer of a tab |

mod cell_cache;
mod details;
mod filter;
mod history;
mod model;
mod natural_order;
mod pages;
mod row;
mod schema;
mod source;
mod table;
mod view;
