package command

import (
	"regexp"

	"github.com/spf13/pflag"
	zpages "k8s.io/component-base/zpages/features"

	"github.com/millrace/millrace/cmd/internal/health"
)

// pages is the content of /flagz, /configz and /statusz, as far as feature gates enable them.
func (o *serviceOptions) pages() health.About {
	about := health.About{Version: kubernetes}
	var gates *features
	if o.ctrl != nil {
		gates = &o.ctrl.features
	}
	if gates.on(string(zpages.ComponentFlagz)) && o.set != nil {
		about.Flags = shownFlags{o.set}
	}
	if o.ctrl != nil && o.set != nil {
		about.Config = o.ctrl.configured(o.set)
	}
	about.Status = gates.on(string(zpages.ComponentStatusz))
	return about
}

// shownFlags are the values of flags, without passwords.
type shownFlags struct{ of *pflag.FlagSet }

// password matches the password of a user in URLs.
var password = regexp.MustCompile(`(://[^/@\s:,]*:)[^/\s,]*@`)

// GetFlagz implements the reader of k8s.io/apiserver/pkg/server/flagz.
func (s shownFlags) GetFlagz() map[string]string {
	values := map[string]string{}
	s.of.VisitAll(func(f *pflag.Flag) {
		values[f.Name] = password.ReplaceAllString(f.Value.String(), "${1}xxxxx@")
	})
	return values
}
