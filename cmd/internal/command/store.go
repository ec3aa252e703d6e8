package command

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/pkg/events/stream"
)

// leastStore holds a few of the largest objects for each stream that a tenant can fill.
const leastStore = 256 << 20

// storeSize is the flag for the maximum size of the store, in bytes; 0 is not set.
type storeSize int64

func (s *storeSize) add(f *pflag.FlagSet) {
	f.Var(s, "nats-max-store",
		"store limit of the NATS server, such as 15Gi; from 80 percent of it on, the oldest messages of the largest streams are dropped (default of the embedded server: three quarters of the space that is free or in use by streams). With --nats-url: the limit of each stock NATS server, which does not drop messages by itself")
}

// Set parses the flag.
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

// String formats the flag's value.
func (s *storeSize) String() string {
	if *s == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

// Type is the value's name in the help.
func (s *storeSize) Type() string { return "SIZE" }

// storePart exports the store metrics of the server in this process. Without such a server, it
// makes room on the servers of --nats-url, if size limits them.
func storePart(server *embedded.Server, b *stream.Bus, size storeSize) []part {
	if server == nil && size == 0 {
		return nil
	}
	if server == nil {
		limit := b.StoreLimit(int64(size))
		return []part{{name: "store", collectors: []prometheus.Collector{limit}, run: limit.Run}}
	}
	return []part{{name: "store", collectors: []prometheus.Collector{server}, run: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}}
}
