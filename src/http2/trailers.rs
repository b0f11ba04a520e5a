//! x
use crate::base::buffer::Buf;
/// x
pub fn from_section(_s: &[u8]) -> http::HeaderMap {
    http::HeaderMap::new()
}
/// x
pub fn to_section(_m: &http::HeaderMap, _o: &mut Buf) {}
