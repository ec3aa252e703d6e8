package busflags

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// leastStore holds a few of the largest objects for each stream that a tenant can fill.
const leastStore = 256 << 20

// StoreSize is the flag for the maximum size of the store, in bytes; 0 is not set.
type StoreSize int64

// Add adds the flag.
func (s *StoreSize) Add(f *pflag.FlagSet) {
	f.Var(s, "nats-max-store",
		"store limit of the NATS server, such as 15Gi; from 80 percent of it on, the oldest messages of the largest streams are dropped (default of the embedded server: three quarters of the space that is free or in use by streams). With --nats-url: the limit of each stock NATS server, which does not drop messages by itself")
}

// Set parses the flag.
func (s *StoreSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is no size: write it as 15Gi or 500Mi", text)
	}
	if q.Value() < leastStore {
		return fmt.Errorf("%s is less than 256Mi, which the streams need to go on while the largest objects are written", text)
	}
	*s = StoreSize(q.Value())
	return nil
}

// String formats the flag's value.
func (s *StoreSize) String() string {
	if *s == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

// Type is the value's name in the help.
func (s *StoreSize) Type() string { return "SIZE" }
