package serviceflags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/services/watcher/versions"
)

// unbounded is the flag's value for no bound.
const unbounded = "none"

// objectBound is the flag that bounds how much of one object is recorded: BURST/RATE, or
// none.
type objectBound versions.Bound

func newObjectBound() objectBound { return objectBound(versions.DefaultBound) }

func (o *objectBound) add(f *pflag.FlagSet) {
	*o = newObjectBound()
	f.Var(o, "object-bound",
		"bytes of versions of one object that are recorded at once, and in each second after that. Versions beyond the limit are left out and counted in the record; the newest version is always recorded in the end. none records all")
}

// Set parses the flag.
func (o *objectBound) Set(text string) error {
	if text == unbounded {
		*o = objectBound{Burst: -1, PerSecond: -1}
		return nil
	}
	burst, rate, ok := strings.Cut(text, "/")
	if !ok {
		return fmt.Errorf("%q is no bound: write BURST/RATE, such as 8Mi/100Ki, or none", text)
	}
	var b objectBound
	for _, part := range []struct {
		text string
		to   *int64
	}{{burst, &b.Burst}, {rate, &b.PerSecond}} {
		q, err := resource.ParseQuantity(part.text)
		if err != nil || q.Value() <= 0 {
			return fmt.Errorf("%q is no size above zero: write BURST/RATE, such as 8Mi/100Ki, or none", part.text)
		}
		*part.to = q.Value()
	}
	*o = b
	return nil
}

// String formats the flag's value.
func (o *objectBound) String() string {
	if o.Burst < 0 {
		return unbounded
	}
	return resource.NewQuantity(o.Burst, resource.BinarySI).String() + "/" + resource.NewQuantity(o.PerSecond, resource.BinarySI).String()
}

// Type is the value's name in the help.
func (o *objectBound) Type() string { return "BURST/RATE" }
