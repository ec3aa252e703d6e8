package telemetry

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events/trace"
)

// sampler decides about a trace at its root span: by rule, or else by rate.
type sampler struct {
	rules []rule
	rate  sdk.Sampler
}

// newSampler follows the parent's sampling decision, and decides for root spans.
func newSampler(s settings) (sdk.Sampler, error) {
	rate := sdk.TraceIDRatioBased(float64(s.rate) / million)
	if s.rate == -1 {
		var err error
		if rate, err = environmentSampler(); err != nil {
			return nil, err
		}
	}
	return sdk.ParentBased(sampler{rules: s.rules, rate: rate}), nil
}

// environmentSampler is the environment's sampler for root spans. Because newSampler always
// follows a parent's decision, the parent-based form of each sampler is the same as the plain one.
func environmentSampler() (sdk.Sampler, error) {
	text := strings.TrimPrefix(strings.ToLower(os.Getenv("OTEL_TRACES_SAMPLER")), "parentbased_")
	switch text {
	case "", "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		argument := cmp.Or(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), "1")
		ratio, err := strconv.ParseFloat(argument, 64)
		if err != nil || ratio < 0 || ratio > 1 {
			return nil, fmt.Errorf("read $OTEL_TRACES_SAMPLER_ARG: %q is not a number from 0 to 1", argument)
		}
		return sdk.TraceIDRatioBased(ratio), nil
	default:
		return nil, fmt.Errorf("read $OTEL_TRACES_SAMPLER: %q is not always_on, always_off or traceidratio, nor one of them behind parentbased_", text)
	}
}

func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	cause, ok := trace.CauseOf(p.ParentContext)
	if !ok {
		return s.rate.ShouldSample(p)
	}
	if cause.Cut {
		return decide(p, sdk.RecordAndSample)
	}
	for _, r := range s.rules {
		if r.fits(cause) {
			if r.Sample == always {
				return decide(p, sdk.RecordAndSample)
			}
			return decide(p, sdk.Drop)
		}
	}
	return s.rate.ShouldSample(p)
}

func decide(p sdk.SamplingParameters, d sdk.SamplingDecision) sdk.SamplingResult {
	return sdk.SamplingResult{Decision: d, Tracestate: otel.SpanContextFromContext(p.ParentContext).TraceState()}
}

func (s sampler) Description() string {
	return fmt.Sprintf("Millrace{%d rules, %s}", len(s.rules), s.rate.Description())
}

// fits is whether a rule matches the cause of a trace.
func (r rule) fits(c trace.Cause) bool {
	switch {
	case len(r.Kinds) > 0 && !slices.Contains(r.Kinds, c.Kind):
		return false
	case len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, c.Namespace):
		return false
	default:
		return r.labels == nil || r.labels.Matches(labels.Set(c.Labels))
	}
}
