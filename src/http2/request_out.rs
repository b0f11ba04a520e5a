//! x
use crate::error::ErrorKind;
use crate::http::RequestHead;
use crate::http::edit::RequestEdit;
/// x
pub fn encode_request(
    _h: &RequestHead,
    _e: &RequestEdit<'_>,
    _s: &str,
) -> Result<http::Request<()>, ErrorKind> {
    Err(ErrorKind::NoEndpoint)
}
