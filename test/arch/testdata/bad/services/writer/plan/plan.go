// Package plan is a good middle.
package plan

import "sync" // want: pure code has no concurrency

type plan struct{ sync.Mutex }
