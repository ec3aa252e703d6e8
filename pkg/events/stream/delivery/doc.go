// Package delivery has what a JetStream server delivers to a consumer: where a message is in its stream and in its
// consumer ([PositionOf]), the messages that wait for their reader ([Prefetch]), and the reply subjects of those
// that can still be acknowledged ([Acks]).
//
// The client library's goroutine hands messages to a Prefetch. A reader takes them in batches, on a goroutine of
// its own. A Prefetch ends with [ErrMayHaveMissed] at the first hole in the consumer's own count: the server, or
// the connection, has lost a delivery.
package delivery
