package provision

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/subject"
)

// FuzzOrder: of what a service asks the provisioner for, only what has names of kinds and
// consumers of its own leads to a stream or a consumer.
func FuzzOrder(f *testing.F) {
	for _, seed := range []string{
		`{"kind":{"name":"pods","version":"v1","kind":"Pod","form":"full"}}`,
		`{"kind":{"name":"..","version":"v1"}}`, `{"kind":{"name":"a.>","kind":"*"}}`, `{"controller":"c","keep":-1}`,
		`{"consumer":{"stream":"TURN_c","durable":"writer","ackWait":-1,"maxPending":9223372036854775807}}`,
		`{"consumer":{"stream":"OUTCOME_c","durable":"c"},"name":"reader-x"}`, `{"consumer":{"stream":"WAKE","durable":"c","subject":"wake.d.>"}}`,
	} {
		f.Add([]byte(seed))
	}
	p := &provider{controllers: []string{"c", "d"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := readOrder(text)
		if err != nil {
			if !strings.Contains(err.Error(), "order") {
				t.Errorf("a refusal that does not say of what: %v", err)
			}
			return
		}
		if k := o.Kind; k != nil && kindName.MatchString(string(k.Name)) {
			stream := subject.LogStream(k.Name)
			if name, ok := subject.KindOfStream(stream); !ok || name != k.Name || strings.ContainsAny(stream, ".*> \t\r\n/\\") {
				t.Errorf("the kind %q has the stream %q, of the kind %q", k.Name, stream, name)
			}
		}
		c := o.Consumer
		if c == nil || !c.Valid() {
			return
		}
		if c.AckWait < 0 || c.MaxPending < 0 || c.MaxPending > 1<<20 {
			t.Errorf("%+v is sane", c)
		}
		for _, user := range []string{access.Writer, access.Reconciler, access.NotaryUser, access.Reader, "", "writer-2"} {
			if !p.owns(user, c) {
				continue
			}
			own := user == access.Writer && c.Durable == access.WriterConsumer && slices.Contains([]string{"TURN_c", "TURN_d"}, c.Stream) ||
				user == access.Reconciler && slices.Contains(p.controllers, c.Durable) && !strings.HasPrefix(c.Stream, "TURN_") &&
					(!strings.HasPrefix(c.Stream, "OUTCOME_") || c.Stream == "OUTCOME_"+c.Durable)
			if !own {
				t.Errorf("the consumer %s of %s is the user %s's", c.Durable, c.Stream, user)
			}
		}
	})
}
