// Package turns tests the way of a turn from the decision to its outcome, with real reconcilers
// and real writers on a real bus that loses or forgets parts of it. The API server is a toy
// that itself appends what it stores to the bus.
package turns
