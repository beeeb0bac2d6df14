package outlier

import "fmt"

// TriggerText says which errors eject a host.
func (s *Settings) TriggerText() string {
	switch errors, local := s.ServerErrorThreshold(), s.LocalOriginThreshold(); {
	case errors > 0 && local > 0:
		return fmt.Sprintf("%d consecutive 5xx, or %d consecutive failures of Envoy's own", errors, local)
	case local > 0:
		return fmt.Sprintf("%d consecutive failures of Envoy's own; 5xx don't count", local)
	case errors > 0 && s.Split:
		return fmt.Sprintf("%d consecutive 5xx; failures of Envoy's own don't count", errors)
	case errors > 0:
		return fmt.Sprintf("%d consecutive 5xx, failures of Envoy's own among them", errors)
	}
	return "every detector is off"
}

// DurationText says for how long a host is ejected.
func (s *Settings) DurationText() string {
	text := fmt.Sprintf("%s, each further time as much more, at most %s", s.BaseEjectionTime(), s.MaxEjectionTime())
	if s.MaxJitter() > 0 {
		text += fmt.Sprintf(", and up to %s by chance", s.MaxJitter())
	}
	return text + fmt.Sprintf("; it ends at the first sweep after, every %s", s.SweepInterval())
}
