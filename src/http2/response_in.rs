//! x
use crate::error::ErrorKind;
use crate::http::{HeadLimits, ResponseHead};
/// x
pub fn read_response(
    _p: &http::response::Parts,
    _h: &mut ResponseHead,
    _l: &HeadLimits,
) -> Result<(), ErrorKind> {
    Err(ErrorKind::NoEndpoint)
}
