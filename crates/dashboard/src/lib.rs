//! stub
pub mod accounts;
pub mod actions;
pub mod app;
pub mod cert;
pub mod commands;
pub mod form;
pub mod history;
pub mod pages;
pub mod rest;
pub mod safe;
pub mod session;
pub mod state;
pub mod why;
