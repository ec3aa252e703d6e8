package telemetry

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// APIVersion and Kind identify the format of the configuration file. The format of
// Kubernetes' own components is accepted as well.
const (
	APIVersion         = "millrace.io/v1alpha1"
	Kind               = "TracingConfiguration"
	upstreamAPIVersion = "apiserver.config.k8s.io/v1"
)

// million is the sampling rate of all traces.
const million = 1_000_000

// Options are the tracing flags.
type Options struct {
	file     string
	endpoint string
	protocol string
	rate     int32 // per million; -1: not set
}

// NewOptions are the options without any flag.
func NewOptions() Options { return Options{rate: -1} }

// Add adds the flags.
func (o *Options) Add(f *pflag.FlagSet) {
	f.StringVar(&o.file, "tracing-config-file", o.file,
		"`file` with a TracingConfiguration: collector, sampling rate, and rules for what is always or never traced")
	f.StringVar(&o.endpoint, "tracing-endpoint", o.endpoint,
		"`address` of an OpenTelemetry collector that takes OTLP: host:port without TLS, or a URL (default $OTEL_EXPORTER_OTLP_ENDPOINT; none: no traces)")
	f.StringVar(&o.protocol, "tracing-protocol", o.protocol,
		"protocol of the collector: grpc or http/protobuf (default $OTEL_EXPORTER_OTLP_PROTOCOL, then grpc)")
	f.Int32Var(&o.rate, "tracing-sampling-rate-per-million", o.rate,
		"number of traces recorded per million; -1 uses the file or $OTEL_TRACES_SAMPLER, or else records all")
}

// Endpoint sets the collector if neither flag nor file nor environment does.
func (o *Options) Endpoint(address string) {
	if o.endpoint == "" && o.file == "" && environment(endpointVariables...) == "" {
		o.endpoint = address
	}
}

// configuration is the content of the file.
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Endpoint is the collector; empty means localhost:4317.
	Endpoint string `json:"endpoint,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	// SamplingRatePerMillion is how many of a million traces are sampled.
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
	// Cluster tells apart the traces of clusters that share UIDs.
	Cluster string `json:"cluster,omitempty"`
	// Rules take precedence over the rate; the first that matches decides.
	Rules []rule `json:"rules,omitempty"`
}

// rule matches the changes with which traces begin. An empty condition matches every change.
type rule struct {
	Sample     string   `json:"sample"` // "always" or "never"
	Kinds      []string `json:"kinds,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Selector   string   `json:"selector,omitempty"`

	labels labels.Selector
}

const (
	always = "always"
	never  = "never"
)

// unasked are the default rules, after those of the file: no traces of Leases and Events.
var unasked = []rule{{Sample: never, Kinds: []string{"leases.coordination.k8s.io", "events", "events.events.k8s.io"}}}

// settings are the merged flags, file and environment.
type settings struct {
	endpoint string // empty: the exporter reads it from the environment
	protocol string
	rate     int32 // -1: the environment's sampler, or all
	cluster  string
	rules    []rule
}

var (
	endpointVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}
	protocolVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}
)

const (
	overGRPC = "grpc"
	overHTTP = "http/protobuf"
)

// settle merges flags, file and environment; on is false without traces.
func (o Options) settle() (s settings, on bool, err error) {
	s = settings{endpoint: o.endpoint, protocol: o.protocol, rate: o.rate, rules: unasked}
	if o.file != "" {
		c, err := read(o.file)
		if err != nil {
			return s, false, err
		}
		c.fill(&s)
	}
	if s.protocol == "" {
		s.protocol = environment(protocolVariables...)
	}
	switch s.protocol {
	case "":
		s.protocol = overGRPC
	case overGRPC, overHTTP:
	default:
		return s, false, fmt.Errorf("read the tracing protocol: %q is not %s or %s", s.protocol, overGRPC, overHTTP)
	}
	if s.rate < -1 || s.rate > million {
		return s, false, fmt.Errorf("read the sampling rate: %d is not between 0 and a million", s.rate)
	}
	off := strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none"
	return s, !off && (s.endpoint != "" || environment(endpointVariables...) != ""), nil
}

func environment(variables ...string) string {
	for _, v := range variables {
		if text := os.Getenv(v); text != "" {
			return text
		}
	}
	return ""
}

func read(file string) (c configuration, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("read --tracing-config-file: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, fmt.Errorf("read %s: %w", file, err)
	}
	ours, upstream := c.APIVersion == APIVersion, strings.HasPrefix(c.APIVersion, upstreamAPIVersion)
	if c.Kind != Kind || !ours && !upstream {
		return c, fmt.Errorf("read %s: it is %q %q, want apiVersion: %s and kind: %s", file, c.APIVersion, c.Kind, APIVersion, Kind)
	}
	if upstream && c.SamplingRatePerMillion == nil {
		c.SamplingRatePerMillion = new(int32) // Upstream: no rate is none
	}
	for i := range c.Rules {
		if err := c.Rules[i].check(); err != nil {
			return c, fmt.Errorf("read %s: rule %d: %w", file, i+1, err)
		}
	}
	return c, nil
}

func (r *rule) check() (err error) {
	if r.Sample != always && r.Sample != never {
		return fmt.Errorf("sample is %q, not %s or %s", r.Sample, always, never)
	}
	if len(r.Kinds) == 0 && len(r.Namespaces) == 0 && r.Selector == "" {
		return errors.New("it names no kinds, namespaces or selector; for all traces there is samplingRatePerMillion")
	}
	if r.Selector != "" {
		if r.labels, err = labels.Parse(r.Selector); err != nil {
			return fmt.Errorf("selector: %w", err)
		}
	}
	return nil
}

// fill sets what the flags leave open.
func (c configuration) fill(s *settings) {
	if s.endpoint == "" {
		s.endpoint = c.Endpoint
	}
	if s.endpoint == "" && environment(endpointVariables...) == "" {
		s.endpoint = "localhost:4317"
	}
	if s.protocol == "" {
		s.protocol = c.Protocol
	}
	if s.rate == -1 && c.SamplingRatePerMillion != nil {
		s.rate = *c.SamplingRatePerMillion
	}
	s.cluster, s.rules = c.Cluster, slices.Concat(c.Rules, unasked)
}
