//! Peers that are slow, idle, read no answer, or send HTTP/2 frames without end: others are answered, memory stays bounded, and the
//! connections of the attackers end.

mod certificate;
mod filled;
mod http_2;
mod odd_heads;
mod slow;
mod small;
mod target;
mod unread;
