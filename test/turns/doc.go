// Package turns tests the way of a turn from the decision to its outcome with real
// reconcilers and real writers on a real bus, when the bus loses or forgets some of
// it. The API server is a toy that tells the bus by itself what it stores.
package turns
