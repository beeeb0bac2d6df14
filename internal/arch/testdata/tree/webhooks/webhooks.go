package webhooks

import _ "github.com/resourcestack/autohealer/controllers/a"
