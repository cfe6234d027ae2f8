//! Says when strangers have nearly filled the room for clients that the operator did not register.

use super::finding::Finding;

/// From here on, an attack or a setting that is too low is likely.
const MUCH_PERCENT: u64 = 80;

/// Examines how much of the room is used up, in percent.
pub(super) fn examine(percent: u64) -> Finding {
    let message = format!(
        "clients that registered themselves or have metadata documents use {percent} percent of their room"
    );
    if percent < MUCH_PERCENT {
        return Finding::good("clients", "room", &message);
    }
    let message = format!(
        "{message}. When it is full, one more takes the place of the oldest that no user has allowed, of the sender who registered most. If users have allowed all, it takes that of the oldest one of the user who holds most. Clients of three users keep their places. If no other client is left, it is refused"
    );
    let remedy = "look through idsvc client list, and remove what is not wanted (idsvc client remove). Let only holders of a token register (clients.registration = \"token\"), or raise clients.most_registered and limits.memory";
    Finding::advice("clients", "room", message, remedy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn room_that_is_nearly_used_up_is_an_advice() {
        assert_eq!(examine(79).level, Level::Good);
        let finding = examine(80);
        assert_eq!(finding.level, Level::Advice);
        assert!(finding.message.contains("80 percent") && finding.remedy.unwrap().contains("token"));
    }
}
