//! stub
pub mod accounts;
pub mod actions;
pub mod cert;
pub mod form;
pub mod history;
pub mod pages;
pub mod safe;
pub mod session;
pub mod state;
pub mod why;
