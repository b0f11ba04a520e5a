//! Whether an origin is still there: the silence of a connection, and what is done about it. No I/O.

use crate::limits::{
    UPSTREAM_HTTP2_DOUBT_MS, UPSTREAM_HTTP2_PING_AFTER_MS, UPSTREAM_HTTP2_PING_EVERY_MS,
    UPSTREAM_HTTP2_PING_TIMEOUT_MS, UPSTREAM_HTTP2_PINGS_IN_DOUBT,
};

/// How long a connection has been silent, and what was done about it.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// When it was last seen to carry a stream, or to have carried one.
    busy_ms: u64,
    /// When something was last heard that was no answer to a PING.
    heard_ms: u64,
    /// When the last PING was sent, and whether it was answered.
    pinged_ms: u64,
    unanswered: bool,
    /// How many were sent in this silence.
    asked: u32,
}

/// What a sweep sees of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Glance {
    /// Something came since the last sweep.
    pub heard: bool,
    /// It carries no stream.
    pub idle: bool,
    /// A stream was begun since the last sweep, which may have ended too.
    pub used: bool,
    /// A request has waited in vain since the last sweep.
    pub doubted: bool,
}

/// What becomes of a connection in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    Keep,
    /// Its read gives its buffer back.
    Park,
    Ping,
    Close,
    GiveUp,
}

impl Pulse {
    /// What is to be done now. An idle connection is closed after `idle_timeout_ms`.
    pub fn care(&mut self, now_ms: u64, idle_timeout_ms: u64, seen: Glance) -> Care {
        if seen.heard || self.heard_ms == 0 {
            self.heard_ms = now_ms;
            (self.unanswered, self.asked) = (false, 0);
        }
        if !seen.idle || seen.used || self.busy_ms == 0 {
            self.busy_ms = now_ms;
        }
        let since = |then_ms: u64| now_ms.saturating_sub(then_ms);
        if seen.idle && since(self.busy_ms) >= idle_timeout_ms {
            return Care::Close;
        }
        if self.unanswered {
            let late = since(self.pinged_ms) >= UPSTREAM_HTTP2_PING_TIMEOUT_MS;
            return if late { Care::GiveUp } else { Care::Keep };
        }
        let silent = since(self.heard_ms) >= UPSTREAM_HTTP2_PING_AFTER_MS;
        let wanted = !seen.heard && (seen.doubted || (silent && !seen.idle));
        let most = if seen.doubted { UPSTREAM_HTTP2_PINGS_IN_DOUBT } else { 1 };
        let rested_ms = match self.asked {
            0 => 0,
            asked if asked < most => UPSTREAM_HTTP2_PING_AFTER_MS,
            _ => UPSTREAM_HTTP2_PING_EVERY_MS,
        };
        if wanted && since(self.pinged_ms) >= rested_ms {
            (self.unanswered, self.pinged_ms) = (true, now_ms);
            self.asked += 1;
            return Care::Ping;
        }
        match since(self.busy_ms) {
            idle_ms if seen.idle && idle_ms > 0 => Care::Park,
            _ => Care::Keep,
        }
    }

    /// Its PING was answered. That does not end the silence: the next one has to wait.
    pub fn answered(&mut self) {
        self.unanswered = false;
    }

    /// Whether a PING has been under way for so long that requests had better go elsewhere.
    pub fn is_doubtful(&self, now_ms: u64) -> bool {
        self.unanswered && now_ms.saturating_sub(self.pinged_ms) >= UPSTREAM_HTTP2_DOUBT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MS: u64 = 60_000;
    const HEARD: Glance = Glance { heard: true, idle: false, used: false, doubted: false };
    const SILENT: Glance = Glance { heard: false, ..HEARD };
    const DOUBTED: Glance = Glance { doubted: true, ..SILENT };
    const IDLE: Glance = Glance { idle: true, ..SILENT };

    fn heard_at(now_ms: u64) -> Pulse {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.care(now_ms, IDLE_MS, HEARD), Care::Keep);
        pulse
    }

    #[test]
    fn a_silent_origin_is_asked_once_and_given_up() {
        let mut pulse = heard_at(1_000);
        let asked_ms = 1_000 + UPSTREAM_HTTP2_PING_AFTER_MS;
        assert_eq!(pulse.care(asked_ms - 1, IDLE_MS, SILENT), Care::Keep);
        assert_eq!(pulse.care(asked_ms, IDLE_MS, SILENT), Care::Ping);
        assert!(!pulse.is_doubtful(asked_ms + UPSTREAM_HTTP2_DOUBT_MS - 1));
        assert!(pulse.is_doubtful(asked_ms + UPSTREAM_HTTP2_DOUBT_MS));
        let late_ms = asked_ms + UPSTREAM_HTTP2_PING_TIMEOUT_MS;
        assert_eq!(pulse.care(late_ms - 1, IDLE_MS, SILENT), Care::Keep);
        assert_eq!(pulse.care(late_ms, IDLE_MS, SILENT), Care::GiveUp);
    }

    /// gRPC servers take frequent PINGs for an attack.
    #[test]
    fn an_answer_ends_the_question_and_not_the_silence() {
        let mut pulse = heard_at(1_000);
        let asked_ms = 1_000 + UPSTREAM_HTTP2_PING_AFTER_MS;
        assert_eq!(pulse.care(asked_ms, IDLE_MS, SILENT), Care::Ping);
        pulse.answered();
        let again_ms = asked_ms + UPSTREAM_HTTP2_PING_EVERY_MS;
        assert_eq!(pulse.care(again_ms - 1, IDLE_MS, SILENT), Care::Keep);
        assert_eq!(pulse.care(again_ms, IDLE_MS, SILENT), Care::Ping);
        let late_ms = again_ms + UPSTREAM_HTTP2_PING_TIMEOUT_MS;
        assert_eq!(pulse.care(late_ms, IDLE_MS, HEARD), Care::Keep, "whatever is heard will do");
        assert!(!pulse.is_doubtful(late_ms));
    }

    /// Whoever waited in vain has the origin asked at once, even if nobody waits any more.
    #[test]
    fn doubt_asks_early_and_seldom() {
        let mut pulse = heard_at(1_000);
        assert_eq!(pulse.care(1_100, IDLE_MS, Glance { heard: true, ..DOUBTED }), Care::Keep);
        assert_eq!(pulse.care(1_200, IDLE_MS, Glance { idle: true, ..DOUBTED }), Care::Ping);
        let late_ms = 1_200 + UPSTREAM_HTTP2_PING_TIMEOUT_MS;
        assert_eq!(pulse.care(late_ms, IDLE_MS, IDLE), Care::GiveUp);
        pulse.answered();
        let again_ms = 1_200 + UPSTREAM_HTTP2_PING_AFTER_MS;
        assert_eq!(pulse.care(again_ms - 1, IDLE_MS, DOUBTED), Care::Keep);
        assert_eq!(pulse.care(again_ms, IDLE_MS, DOUBTED), Care::Ping);
        pulse.answered();
        let third_ms = again_ms + UPSTREAM_HTTP2_PING_EVERY_MS;
        assert_eq!(pulse.care(third_ms - 1, IDLE_MS, DOUBTED), Care::Keep);
        assert_eq!(pulse.care(third_ms, IDLE_MS, DOUBTED), Care::Ping);
    }

    #[test]
    fn an_idle_connection_is_parked_and_closed() {
        let mut pulse = heard_at(1_000);
        assert_eq!(pulse.care(1_100, IDLE_MS, IDLE), Care::Park);
        assert_eq!(pulse.care(999 + IDLE_MS, IDLE_MS, IDLE), Care::Park, "nobody asks it");
        let used = Glance { used: true, ..IDLE };
        assert_eq!(pulse.care(1_000 + IDLE_MS, IDLE_MS, used), Care::Keep, "between two sweeps");
        assert_eq!(pulse.care(1_000 + 2 * IDLE_MS, IDLE_MS, IDLE), Care::Close);
    }
}
