// Package bus knows an implementation of itself.
package bus

import (
	_ "github.com/millrace/millrace/pkg/events"
	_ "github.com/millrace/millrace/pkg/events/stream" // want: must not know any implementation
)
