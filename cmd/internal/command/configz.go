package command

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The names under which /configz tells of configurations: that of kube-controller-manager's group,
// and ours.
const (
	upstreamGroup = "kubecontrollermanager.config.k8s.io"
	ownGroup      = "millrace"
)

// configured is what /configz tells of a process with controllers: what its flags are in the
// configuration of kube-controller-manager, and which controllers run with which settings.
func (o *controllerOptions) configured(set *pflag.FlagSet) map[string]any {
	return map[string]any{upstreamGroup: upstreamConfig(set), ownGroup: o.chosen.config()}
}

// upstreamConfig are flags as fields of upstream's configuration. What no flag of this process sets
// is left out.
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

// valueOf is the value of a flag, as a field of the configuration has it.
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

// controllerConfig is a controller that runs.
type controllerConfig struct {
	Name string `json:"name"`
	// Shadow is true for one that writes nothing.
	Shadow bool `json:"shadow,omitempty"`
	// Settings are those that its turns record; none where they are the defaults.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// config is what --controllers and --shadow have come to.
func (c choice) config() map[string]any {
	all := []controllerConfig{}
	for _, one := range []struct {
		of     []reconcile.Any
		shadow bool
	}{{c.acting, false}, {c.looking, true}} {
		for _, controller := range one.of {
			d := controller.Describe()
			all = append(all, controllerConfig{d.Name, one.shadow, d.Settings})
		}
	}
	return map[string]any{"controllers": all}
}
