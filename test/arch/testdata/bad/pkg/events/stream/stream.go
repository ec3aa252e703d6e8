// Package stream may do what others may not, and reaches too far.
package stream

import (
	_ "github.com/nats-io/nats.go"

	_ "github.com/millrace/millrace/services/writer/plan" // want: knows neither the services nor the API server
)
