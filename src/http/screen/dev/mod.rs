//! The screens of the development server.

pub mod device;
pub mod home;
pub mod mail;
