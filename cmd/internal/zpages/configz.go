package zpages

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The names of the configurations in /configz: kube-controller-manager's, and Millrace's own.
const (
	upstreamGroup = "kubecontrollermanager.config.k8s.io"
	ownGroup      = "millrace"
)

// Config is the /configz of a process with controllers: its flags as kube-controller-manager's
// configuration, and the controllers that run, with their settings.
func Config(set *pflag.FlagSet, chosen controllerflags.Choice) map[string]any {
	return map[string]any{upstreamGroup: upstreamConfig(set), ownGroup: configOf(chosen)}
}

// upstreamConfig are the flags as fields of upstream's configuration. It leaves out fields that no
// flag of this process sets.
func upstreamConfig(set *pflag.FlagSet) map[string]any {
	config := map[string]any{"apiVersion": upstreamGroup + "/v1alpha1", "kind": "KubeControllerManagerConfiguration"}
	for _, f := range configFields {
		if is := set.Lookup(f.flag); is != nil {
			put(config, f.path, valueOf(is))
		}
	}
	if is := set.Lookup("service-cluster-ip-range"); is != nil {
		// Upstream: the first of two ranges is one field, and the second another.
		first, rest, _ := strings.Cut(is.Value.String(), ",")
		second, _, _ := strings.Cut(rest, ",")
		put(config, "NodeIPAMController.ServiceCIDR", first)
		put(config, "NodeIPAMController.SecondaryServiceCIDR", second)
	}
	return config
}

// put sets a field by its path.
func put(config map[string]any, path string, value any) {
	name, rest, below := strings.Cut(path, ".")
	if !below {
		config[name] = value
		return
	}
	inner, _ := config[name].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		config[name] = inner
	}
	put(inner, rest, value)
}

// valueOf is the value of a flag as the type of a configuration field, without passwords.
func valueOf(f *pflag.Flag) any {
	text := f.Value.String()
	if list, is := f.Value.(pflag.SliceValue); is {
		return list.GetSlice()
	}
	switch f.Value.Type() {
	case "bool":
		on, _ := strconv.ParseBool(text)
		return on
	case "int", "int32", "float32", "float64":
		return json.Number(text)
	default:
		return password.ReplaceAllString(text, "${1}xxxxx@")
	}
}

// controllerConfig is a running controller in /configz.
type controllerConfig struct {
	Name string `json:"name"`
	// Shadow is true for a controller in shadow, which writes nothing.
	Shadow bool `json:"shadow,omitempty"`
	// Settings are those that its turns record; empty for the defaults.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// configOf is the effect of --controllers and --shadow, for /configz.
func configOf(chosen controllerflags.Choice) map[string]any {
	all := []controllerConfig{}
	for _, one := range []struct {
		of     []reconcile.Any
		shadow bool
	}{{chosen.Acting, false}, {chosen.Looking, true}} {
		for _, controller := range one.of {
			d := controller.Describe()
			all = append(all, controllerConfig{d.Name, one.shadow, d.Settings})
		}
	}
	return map[string]any{"controllers": all}
}
