package health

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/configz"
)

// component is the name of the process on these pages.
const component = "millrace"

// About is the content of /flagz, /configz and /statusz. The zero value serves none of them.
type About struct {
	// Flags are the flags with their values; nil serves no /flagz.
	Flags flagz.Reader
	// Config are the configurations, by group; nil serves no /configz.
	Config map[string]any
	// Status serves /statusz.
	Status bool
	// Version is the release of Kubernetes that the process behaves as, such as 1.36.
	Version string
}

// pages are /configz, /flagz and /statusz. /statusz lists paths.
func (a About) pages(paths []string) map[string]http.Handler {
	pages := handlers{}
	if a.Config != nil {
		pages.Handle(configz.DefaultConfigzPath, shown(a.Config))
		paths = append(paths, configz.DefaultConfigzPath)
	}
	if a.Flags != nil {
		flagz.Install(pages, component, a.Flags)
		paths = append(paths, flagz.DefaultFlagzPath)
	}
	if a.Status {
		as := compatibility.NewEffectiveVersionFromString(a.Version, "", "")
		statusz.Install(pages, component, statusz.NewRegistry(as, statusz.WithListedPaths(paths)))
	}
	return pages
}

// shown serves configurations in the format of Kubernetes' components.
//
// Upstream: k8s.io/component-base/configz, which keeps those of a process in a global variable.
func shown(config map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(config)
		if err != nil {
			http.Error(w, "write the configuration down: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(text) // an error means that the client is gone
	})
}

// handlers collects the pages that upstream's packages install.
type handlers map[string]http.Handler

// Handle adds a page.
func (h handlers) Handle(path string, page http.Handler) { h[path] = page }

// paths are the paths of the other pages.
func (s *Server) paths() []string {
	paths := append(slices.Sorted(maps.Keys(s.pages)), "/healthz", "/livez", "/readyz", "/metrics")
	if s.profiling {
		paths = append(paths, "/debug/pprof/")
	}
	return paths
}
