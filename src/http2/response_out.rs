//! x
use crate::http::ResponseHead;
use crate::http::edit::ResponseEdit;
/// x
pub fn encode_response(_h: &ResponseHead, _e: &ResponseEdit<'_>) -> http::Response<()> {
    http::Response::new(())
}
