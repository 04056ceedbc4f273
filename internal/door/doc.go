// Package door keeps listening sockets alive and limits the connections that they accept, whoever
// connects:
//
//   - a Listener continues to accept after a lack of descriptors or memory, and
//     reports while that lasts;
//   - Places limits connections that are not in use yet, per user and in total,
//     and chooses which of them to close when room is needed;
//   - an Eager connection has a reader that polls for bytes before it sleeps;
//   - a Resumable connection outlives the TCP connections that carry it, and knows when the other
//     side is gone;
//   - a Sealed connection goes on where TLS has set one up, and encrypts bulk data with fewer copies;
//   - a Lane is a connection for bulk data that any goroutine can close at once;
//   - Sparing logs what those who connect can cause, but not as often as they like;
//   - PortTrouble explains why a port cannot be opened.
//
// It knows no protocol, and of users only a name.
package door
