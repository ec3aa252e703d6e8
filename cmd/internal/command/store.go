package command

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/pkg/events/stream"
)

// leastStore is a few of the largest objects for each of the streams that a tenant can
// fill.
const leastStore = 256 << 20

// storeSize is the flag that says how large the store may become; 0 is not said.
type storeSize int64

func (s *storeSize) add(f *pflag.FlagSet) {
	f.Var(s, "nats-max-store",
		"bytes that the embedded NATS server may store, such as 15Gi; from 80 percent on it drops the oldest messages of its largest streams (default three quarters of the disk that is free or used by them)")
}

// Set reads the flag.
func (s *storeSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is no size: write it as 15Gi or 500Mi", text)
	}
	if q.Value() < leastStore {
		return fmt.Errorf("%s is less than 256Mi, which the streams need to go on while the largest objects are written", text)
	}
	*s = storeSize(q.Value())
	return nil
}

// String writes the flag.
func (s *storeSize) String() string {
	if *s == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

// Type is what the help calls the value.
func (s *storeSize) Type() string { return "SIZE" }

// storePart is what the server in this process says of its store, if there is one.
func storePart(server *stream.Server) []part {
	if server == nil {
		return nil
	}
	return []part{{name: "store", collectors: []prometheus.Collector{server}, run: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}}
}
