package apply_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

// TestWordsOfTheAPIServerAreNotToldOfWhatIsHidden: a validation or a webhook quotes values
// when it refuses; of kinds of which something is hidden the outcome has code and reason.
func TestWordsOfTheAPIServerAreNotToldOfWhatIsHidden(t *testing.T) {
	for name, c := range map[string]struct {
		hidden []kinds.Name
		told   bool
	}{"a kind with rules": {[]kinds.Name{kinds.Pods.Name}, false}, "one without": {[]kinds.Name{kinds.ConfigMaps.Name}, true}} {
		s := fakeserver.New(t)
		s.Break(func(fakeserver.Request) fakeserver.Fault { return fakeserver.Fault{Code: 422} })
		r := carry(t, open(t, s, func(to *apply.Config) { to.Discreet = c.hidden }), plan.Options{}, births(1)...)[0]
		if r.Code != 422 || r.Message == "" || strings.Contains(r.Message, "as the test asked") != c.told {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
