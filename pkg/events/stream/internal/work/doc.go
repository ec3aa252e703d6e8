// Package work consumes a stream through a durable consumer, which workers of the same name share: each message
// goes to one of them, and comes again until it is answered. [Run] notices when the consumer has lost its position,
// and has it created again.
package work
