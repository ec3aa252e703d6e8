package zpages

import (
	"regexp"

	"github.com/spf13/pflag"
)

// Flags are the values of flags, without passwords.
type Flags struct{ Set *pflag.FlagSet }

// password matches the password of a user in URLs.
var password = regexp.MustCompile(`(://[^/@\s:,]*:)[^/\s,]*@`)

// GetFlagz implements the reader of k8s.io/apiserver/pkg/server/flagz.
func (s Flags) GetFlagz() map[string]string {
	values := map[string]string{}
	s.Set.VisitAll(func(f *pflag.Flag) {
		values[f.Name] = password.ReplaceAllString(f.Value.String(), "${1}xxxxx@")
	})
	return values
}
